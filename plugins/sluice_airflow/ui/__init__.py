"""The pages in Airflow's UI.

What is on disk (`reading`, `outlook`) becomes what a page shows (`views`, `charts`), and a template prints that.
"""
