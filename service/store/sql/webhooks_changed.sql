-- Which webhooks have changed lately, with the revision they are at. $1 seconds reach back over transactions that were
-- still open at the last look.
SELECT webhook_key, revision
FROM webhooks
WHERE changed_at >= now() - make_interval(secs => $1::double precision)
