-- Tell the deliver processes, at commit, that a webhook has changed.
NOTIFY webhookd_webhooks
