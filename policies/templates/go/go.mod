module my-policy

go 1.24
