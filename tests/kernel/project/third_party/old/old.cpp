int old_answer() { return 42; }
