"""Deciding what a run will do: look (`survey`), decide (`planner`), say (`explain`). No JVM anywhere in here."""
