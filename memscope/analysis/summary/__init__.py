"""What a recording and a run come to, as every view shows it."""
