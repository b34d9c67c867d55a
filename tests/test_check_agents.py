"""What `classifier check` says of agents: who guards them where, and which name is misspelt."""

from __future__ import annotations

from pathlib import Path

from tests.processes import environment, run


async def test_check_lists_each_agent_with_its_model_tools_and_guards(tmp_path: Path) -> None:
    environ = environment(tmp_path, CLASSIFIER_APP="tests.apps.helped:app")
    finished = await run("check", "--json", environ=environ)
    assert finished.code == 0, finished.errors
    values = {finding["what"]: finding["value"] for finding in finished.json["findings"]}
    assert values["agent helper"] == (
        "model tested; input: topic; stream: safety; output: unguarded; "
        "tools: pay (arguments: civil, results: civil, needs approval), look"
    )


async def test_a_misspelt_name_of_an_agents_processor_or_tool_names_itself(tmp_path: Path) -> None:
    environ = environment(tmp_path, CLASSIFIER_APP="tests.apps.helped:misspelt")
    finished = await run("check", "--json", environ=environ)
    assert finished.code == 1
    problems = [finding["problem"] for finding in finished.json["findings"] if finding["problem"]]
    assert (
        "agent 'helper' names the processor 'civl' for output; registered: topic, safety, civil" in problems
    )
    assert "agent 'helper' names the tool 'refnd'; registered: none" in problems
