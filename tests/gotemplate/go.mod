module kproxide.dev/tests/gotemplate

go 1.26.7
