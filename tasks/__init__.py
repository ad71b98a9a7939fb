"""What is asked and how answers are judged: data sets, held-out tasks, graders, reward."""
