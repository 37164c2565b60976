"""Pure: phases, outcomes and causes as closed lists, and which cause a log line names."""
