"""What runs when: the times of dynamic tables and tasks, their order, and the thread that keeps both."""
