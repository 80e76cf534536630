//! Tests of the adapter as a whole: the same cases on a simulated API server and on a real one, and kube-scheduler as the oracle of verdicts.

mod cases;
mod oracle;
mod real;
mod simulated;
