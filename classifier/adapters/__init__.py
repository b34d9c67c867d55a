"""Our processors in the agents of others: the OpenAI Agents SDK and Pydantic AI, each in its own file."""
