"""The language of programs: vocabulary, numbers, and sentences about boards, tasks and decisions."""
