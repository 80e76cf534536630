//! Figures that policies derive from the facts about a hypervisor. Each is defined here once, so that two policies mean
//! the same thing by the same word.

use crate::{Candidate, Resources};

impl Candidate {
    /// Whether a machine may be placed here. Only such candidates may be ranked.
    pub fn is_eligible(&self) -> bool {
        self.ineligible.is_none()
    }

    /// The part of the CPU that is idle as Proxmox measures it, 0.0 to 1.0.
    ///
    /// A measurement that is no number counts as busy: what nobody knows to be free is not promised to a machine.
    pub fn cpu_share(&self) -> f64 {
        if self.cpu_usage.is_nan() {
            0.0
        } else {
            1.0 - self.cpu_usage.clamp(0.0, 1.0)
        }
    }

    /// The part of the memory given to virtual machines that may still be given, 0.0 to 1.0: available over
    /// (capacity × overcommit − system-reserved).
    ///
    /// The overcommit factor is not among the facts, and need not be: `available` is that divisor less what is
    /// taken, so the divisor is `available` plus what is taken. Without any memory the share is 0.
    pub fn memory_share(&self) -> f64 {
        let available = u128::from(self.available.memory_bytes);
        let taken = u128::from(self.used.memory_bytes.max(self.committed.memory_bytes))
            + u128::from(self.in_flight.memory_bytes);
        ratio(available, available + taken)
    }

    /// Cores that are promised for each thread of the hypervisor, with those of a machine that would be placed there: 0.5
    /// where half of the threads are promised, 2.0 where each is promised twice.
    ///
    /// What Proxmox measures says nothing of machines that are new or idle. Promises count from the decision on, and
    /// 2 cores are half of a server with 4 threads and little of one with 64.
    pub fn promised_per_thread(&self, machine: &Resources) -> f64 {
        ratio(self.promised(machine), self.capacity_of_cpu())
    }

    /// The part of the CPU that is left to a promise more, 0.0 to 1.0: threads over (threads + promised cores), with those
    /// of a machine that would be placed there. 0.5 where each thread is promised once; never 0 where there are threads,
    /// whatever may be promised beyond them.
    pub fn unpromised_cpu_share(&self, machine: &Resources) -> f64 {
        let threads = self.capacity_of_cpu();
        ratio(threads, threads + self.promised(machine))
    }

    fn capacity_of_cpu(&self) -> u128 {
        self.hypervisor.capacity.milli_cores.into()
    }

    fn promised(&self, machine: &Resources) -> u128 {
        let each = [self.committed, self.in_flight, *machine];
        each.iter().map(|it| u128::from(it.milli_cores)).sum()
    }
}

/// A share for the eye of the operator, in whole percent. (Formatting a float would make a small component a third larger.)
pub fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

/// `part / whole`, and 0 where there is no whole.
fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{candidate, resources};

    #[test]
    fn cpu_share_is_what_is_idle_and_never_outside_its_bounds() {
        for (usage, share) in [
            (0.0, 1.0),
            (0.25, 0.75),
            (1.0, 0.0),
            (1.2, 0.0),
            (-0.1, 1.0),
            (f64::INFINITY, 0.0),
            (f64::NAN, 0.0),
        ] {
            let candidate = Candidate {
                cpu_usage: usage,
                ..candidate("a")
            };
            assert_eq!(candidate.cpu_share(), share, "usage {usage}");
        }
    }

    #[test]
    fn percent_rounds() {
        assert_eq!(
            [0.0, 0.004, 0.005, 0.5, 0.999, 1.0].map(percent),
            [0, 0, 1, 50, 100, 100]
        );
    }

    #[test]
    fn memory_share_is_available_over_what_is_given_to_machines() {
        // 64 GiB, 4 reserved, 30 committed of which 10 are in use, 15 in flight: 15 of 60 remain.
        let candidate = Candidate {
            system_reserved: resources(0, 4),
            used: resources(0, 10),
            committed: resources(0, 30),
            in_flight: resources(0, 15),
            available: resources(0, 15),
            ..candidate("a")
        };
        assert_eq!(candidate.memory_share(), 0.25);
    }

    #[test]
    fn r30_promised_cores_weigh_more_on_a_server_with_few_threads() {
        // 2 cores are promised and 2 in flight, and the machine wants 4.
        let [small, big] = [4, 64].map(|threads| {
            let mut it = Candidate {
                committed: resources(2, 0),
                in_flight: resources(2, 0),
                ..candidate("a")
            };
            it.hypervisor.capacity = resources(threads, 64);
            it
        });
        let machine = resources(4, 8);
        assert_eq!(small.promised_per_thread(&machine), 2.0);
        assert_eq!(big.promised_per_thread(&machine), 0.125);
        assert_eq!(small.unpromised_cpu_share(&machine), 4.0 / 12.0);
        assert_eq!(big.unpromised_cpu_share(&machine), 64.0 / 72.0);
        let mut none = candidate("a");
        none.hypervisor.capacity = resources(0, 0);
        assert_eq!(none.unpromised_cpu_share(&machine), 0.0);
        assert_eq!(none.promised_per_thread(&machine), 0.0);
    }

    #[test]
    fn memory_share_follows_the_overcommit_that_is_in_available() {
        // 64 GiB at twice its size: 128 to give, 32 committed.
        let candidate = Candidate {
            committed: resources(0, 32),
            available: resources(0, 96),
            ..candidate("a")
        };
        assert_eq!(candidate.memory_share(), 0.75);
    }

    #[test]
    fn a_hypervisor_without_memory_has_a_share_of_zero() {
        let nothing = resources(0, 0);
        let candidate = Candidate {
            available: nothing,
            ..candidate("a")
        };
        assert_eq!(candidate.memory_share(), 0.0);
    }

    #[test]
    fn more_in_use_than_committed_counts() {
        let candidate = Candidate {
            used: resources(0, 48),
            committed: resources(0, 16),
            available: resources(0, 16),
            ..candidate("a")
        };
        assert_eq!(candidate.memory_share(), 0.25);
    }
}
