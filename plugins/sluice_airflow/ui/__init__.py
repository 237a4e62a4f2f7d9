"""The pages in Airflow's UI.

What is on disk (`reading`, `next_run`) becomes what a page shows (`views`, `charts`), and a template prints that.
"""
