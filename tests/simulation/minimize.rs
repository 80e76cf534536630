//! What of a failing seed is needed for it to fail: faults are dropped for as long as it still does, whole classes first, then one by one, then what people do.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::check::check;
use crate::log;
use crate::plan::FaultPlan;
use crate::scenario::Scenario;

/// Prints what is left of a failing seed when nothing more can be dropped, with the end of its log.
pub(crate) fn minimize(seed: u64, lines: usize) -> io::Result<ExitCode> {
    let mut scenario = Scenario::of(seed);
    let mut plan = FaultPlan::of(&scenario);
    let mut out = io::stdout().lock();
    let mut last = check(&scenario, &plan);
    let Err(error) = &last.came else {
        writeln!(out, "seed {seed} passes: there is nothing to drop")?;
        return Ok(ExitCode::SUCCESS);
    };
    let failure = kind(error);
    writeln!(out, "seed {seed} fails: {error}\n")?;
    loop {
        let faults = plan
            .smaller()
            .into_iter()
            .map(|(what, plan)| (what, scenario.clone(), plan));
        let people = scenario
            .smaller()
            .into_iter()
            .map(|(what, scenario)| (what, scenario, plan.clone()));
        let found = faults.chain(people).find_map(|(what, scenario, plan)| {
            let checked = check(&scenario, &plan);
            let same = checked
                .came
                .as_ref()
                .is_err_and(|error| kind(error) == failure);
            same.then_some((what, scenario, plan, checked))
        });
        let Some((what, smaller_scenario, smaller_plan, checked)) = found else {
            break;
        };
        writeln!(out, "fails as well without {what}")?;
        out.flush()?;
        (scenario, plan, last) = (smaller_scenario, smaller_plan, checked);
    }
    let error = last.came.err().unwrap_or_default();
    writeln!(
        out,
        "\nwhat is left\n{scenario}{plan}\nthe last {lines} lines of its log, with virtual time\n{}\n\nseed {seed} FAILS: {error}",
        log::tail(&last.log, lines)
    )?;
    Ok(ExitCode::FAILURE)
}

/// What failed, without the names and numbers that are others in every run: up to the first word with a digit or a quote, but for the name of an invariant.
fn kind(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let mut words = line.split(' ').peekable();
    let law = words.next_if(|word| word.ends_with(':'));
    let same = |word: &&str| {
        !word.contains(|letter: char| letter.is_ascii_digit() || letter == '"' || letter == '-')
    };
    let kept: Vec<&str> = law.into_iter().chain(words.take_while(same)).collect();
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn one_failure_is_the_same_whatever_it_met() {
        let (one, other) = (
            "VM 512 has no claim\nmore",
            "VM 530 has no claim\nand other things",
        );
        assert_eq!(kind(one), kind(other));
        assert_ne!(kind(one), kind("L4: no rest after 120 minutes"));
        assert_ne!(kind("S2: VM 512"), kind("S8: VM 512"));
        assert_eq!(kind("3 panics in tasks"), kind("2 panics in tasks"));
        let drained = |claim: &str| format!("S7: claim {claim} is drained (Empty)");
        let (one, other) = (drained("workers-ye7rag0j"), drained("workers-x9h41hn7"));
        assert_eq!(kind(&one), kind(&other));
    }
}
