//! A packing of our own: first-fit decreasing by CPU, of which machines and pods of these worlds have least. Of pods that keep their own kind away a machine carries one.

pub(super) struct Bins {
    size: u32,
    bins: Vec<Bin>,
    made: usize,
}

struct Bin {
    free: u32,
    has_loner: bool,
}

/// What a pod asks for.
#[derive(Clone, Copy)]
pub(super) struct Asks {
    pub(super) milli_cores: u32,
    /// A machine carries one of these.
    pub(super) alone: bool,
}

impl Bins {
    /// New ones are so large.
    pub(super) fn new(size: u32) -> Self {
        Self {
            size,
            bins: Vec::new(),
            made: 0,
        }
    }

    /// One that is there, with so much free.
    pub(super) fn add(&mut self, free: u32, has_loner: bool) {
        self.bins.push(Bin { free, has_loner });
    }

    /// Puts all of them in, the largest first.
    pub(super) fn put(&mut self, mut pods: Vec<Asks>) {
        pods.sort_unstable_by_key(|pod| (!pod.alone, std::cmp::Reverse(pod.milli_cores)));
        for pod in pods {
            let fits =
                |bin: &&mut Bin| bin.free >= pod.milli_cores && !(pod.alone && bin.has_loner);
            match self.bins.iter_mut().find(fits) {
                Some(bin) => {
                    bin.free -= pod.milli_cores;
                    bin.has_loner |= pod.alone;
                }
                None => self.make(pod),
            }
        }
    }

    /// Makes more until so much is free in all of them.
    pub(super) fn keep_free(&mut self, wanted: u32) {
        let nothing = Asks {
            milli_cores: 0,
            alone: false,
        };
        while self.bins.iter().map(|bin| bin.free).sum::<u32>() < wanted {
            self.make(nothing);
        }
    }

    fn make(&mut self, with: Asks) {
        self.add(self.size.saturating_sub(with.milli_cores), with.alone);
        self.made += 1;
    }

    /// So many had to be made.
    pub(super) fn made(&self) -> usize {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_go_where_there_is_room_and_headroom_is_what_they_leave() {
        let made = |there: &[u32], pods: &[u32], headroom: u32| {
            let mut bins = Bins::new(4000);
            there.iter().for_each(|free| bins.add(*free, false));
            let asks = |milli_cores: &u32| Asks {
                milli_cores: *milli_cores,
                alone: false,
            };
            bins.put(pods.iter().map(asks).collect());
            bins.keep_free(headroom);
            bins.made()
        };
        assert_eq!(made(&[], &[1000], 2000), 1);
        assert_eq!(made(&[], &[1000; 3], 2000), 2);
        assert_eq!(made(&[1000], &[1000], 0), 0);
        assert_eq!(made(&[1000], &[1000], 500), 1);
        assert_eq!(made(&[500, 500], &[1000], 0), 1);
        assert_eq!(made(&[], &[1500, 2500, 1500, 2500], 0), 2);
    }

    #[test]
    fn a_machine_carries_one_pod_that_takes_the_port() {
        let taking = Asks {
            milli_cores: 100,
            alone: true,
        };
        let mut bins = Bins::new(4000);
        bins.add(4000, true);
        bins.add(4000, false);
        bins.put(vec![taking; 3]);
        assert_eq!(bins.made(), 2);
    }
}
