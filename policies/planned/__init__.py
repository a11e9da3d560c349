"""What policies share that let the exact planner decide: outlook, exploration, OFF, step times."""
