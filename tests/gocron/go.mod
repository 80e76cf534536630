// Reads schedules as Kubernetes does: the version of the module is that of Kubernetes' own go.mod (see ../controlplane).
module kproxide.dev/tests/gocron

go 1.26.7

require github.com/robfig/cron/v3 v3.0.1
