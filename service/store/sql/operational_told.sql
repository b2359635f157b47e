UPDATE operational_progress SET told_until = $2 WHERE name = $1
