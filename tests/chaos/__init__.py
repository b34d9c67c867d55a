"""The product under fire: a seeded plan of faults, a run on real servers, and what has to hold afterwards."""
