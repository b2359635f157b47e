-- Tell the deliver processes, at commit, that something is due.
NOTIFY webhookd_due
