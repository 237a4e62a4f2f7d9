"""The Delta sink: its declaration, its rules, and how rows are written aside and published."""
