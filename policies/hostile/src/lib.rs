//! `hostile`: a host-selection policy that misbehaves as its settings say, so that the tests of the engine can watch each
//! limit hold. It is no part of kproxide: it is built under the feature `hostile` of `kproxide-builtins` alone.

use std::hint::black_box;

use kproxide_policy_sdk::{
    About, Candidate, Context, HostSelection, Placement, Policy, PolicyError, Ranking, Rejection,
    Request, log,
};
use serde::Deserialize;

pub struct Hostile;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    #[serde(rename = "do")]
    pub what: Do,
}

/// What it does instead of answering, or what is wrong with its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Do {
    /// Nothing bad: every eligible candidate is as good as any.
    #[default]
    Behave,
    /// Gives the facts back as text in its state, so that a test sees what arrived.
    Echo,

    Panic,
    Spin,
    Allocate,
    Recurse,
    /// Nothing bad, and says so.
    Say,
    LogForever,
    LogMuch,
    /// Says more than is listened to, then why it panics.
    LogThenPanic,

    NanScore,
    ScoreAboveOne,
    NegativeScore,
    NegativeZero,
    UnknownPlacement,
    UnknownRejection,
    PlacedTwice,
    RejectedToo,
    IneligiblePlaced,
    HugeState,
    HugeAnswer,
    /// Control characters and a change of direction, which would garble a terminal or a log.
    UnprintableReason,
    LongReason,

    /// Nothing bad: the first candidate is not wanted.
    RejectFirst,
    NothingPlaced,
    NoCandidate,
    Internal,
    /// Fails for the first machine of a batch alone, so that failure and success can alternate.
    FailFirst,

    /// Panics as soon as the settings are checked.
    PanicInCheck,
    /// Never ends the check.
    SpinInCheck,
}

impl Policy for Hostile {
    const ABOUT: About = About {
        name: "hostile",
        version: env!("CARGO_PKG_VERSION"),
        description: "misbehaves as its settings say",
        settings_schema: "",
    };
    type Settings = Settings;

    fn check(settings: &Settings) -> Result<(), PolicyError> {
        if settings.what == Do::PanicInCheck {
            panic!("on purpose, in check-settings");
        }
        if settings.what == Do::SpinInCheck {
            spin();
        }
        Ok(())
    }
}

impl HostSelection for Hostile {
    fn rank(
        context: &Context,
        settings: &Settings,
        request: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError> {
        let fine = Ranking::by_score(candidates, |_| (0.5, "as good as any".to_owned()));
        let scored = |index: u32, score: f64| Placement {
            index,
            score,
            reason: "as good as any".to_owned(),
        };
        let rejected = |index: u32| Rejection {
            index,
            reason: "not wanted".to_owned(),
        };
        let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        match settings.what {
            Do::Behave | Do::PanicInCheck | Do::SpinInCheck => Ok(fine),
            Do::Echo => {
                let mut facts = format!("{context:?} {request:?} {candidates:?}").into_bytes();
                facts.truncate(4096);
                let state = Some(facts);
                Ok(Ranking { state, ..fine })
            }

            Do::Panic => panic!("on purpose"),
            Do::Spin => spin(),
            Do::Allocate => allocate(),
            Do::Recurse => Err(PolicyError::internal(recurse(0).to_string())),
            Do::Say => {
                log::info(&format!(
                    "placing {} of {}",
                    request.batch_index, request.batch_size
                ));
                Ok(fine)
            }
            Do::LogForever => loop {
                log::info("again");
            },
            Do::LogMuch => {
                log::info(&"x".repeat(5 << 20));
                Ok(fine)
            }
            Do::LogThenPanic => {
                for line in 0..100 {
                    log::info(&format!("line {line}"));
                }
                panic!("after 100 lines");
            }

            Do::NanScore => Ok(placed(scored(0, f64::NAN))),
            Do::ScoreAboveOne => Ok(placed(scored(0, 1.5))),
            Do::NegativeScore => Ok(placed(scored(0, -0.25))),
            Do::NegativeZero => Ok(placed(scored(0, -0.0))),
            Do::UnknownPlacement => Ok(placed(scored(count, 0.5))),
            Do::UnknownRejection => Ok(Ranking {
                rejected: vec![rejected(count)],
                ..fine
            }),
            Do::PlacedTwice => Ok(Ranking {
                placements: vec![scored(0, 0.5), scored(0, 0.6)],
                ..placed(scored(0, 0.5))
            }),
            Do::RejectedToo => Ok(Ranking {
                rejected: vec![rejected(0)],
                ..placed(scored(0, 0.5))
            }),
            Do::IneligiblePlaced => {
                let first = (0_u32..)
                    .zip(candidates)
                    .find(|(_, candidate)| !candidate.is_eligible());
                let (index, _) = first.ok_or_else(|| PolicyError::internal("all are eligible"))?;
                Ok(placed(scored(index, 0.5)))
            }
            Do::HugeState => Ok(Ranking {
                state: Some(vec![7; 4097]),
                ..fine
            }),
            Do::HugeAnswer => Ok(placed(Placement {
                reason: "x".repeat(5 << 20),
                ..scored(0, 0.5)
            })),
            Do::UnprintableReason => Ok(placed(Placement {
                reason: "one\r\ntwo \u{1b}[31mred \u{202e}txet ".to_owned(),
                ..scored(0, 0.5)
            })),
            Do::LongReason => Ok(placed(Placement {
                reason: "ä".repeat(1000),
                ..scored(0, 0.5)
            })),

            Do::RejectFirst => {
                let mut is_first = true;
                Ok(Ranking::by(candidates, |_| {
                    match std::mem::take(&mut is_first) {
                        true => Err("not wanted".to_owned()),
                        false => Ok((1.0, String::new())),
                    }
                }))
            }
            Do::NothingPlaced => Ok(Ranking {
                placements: Vec::new(),
                ..fine
            }),
            Do::NoCandidate => Err(PolicyError::NoCandidate("not before noon".to_owned())),
            Do::FailFirst if request.batch_index > 0 => Ok(fine),
            Do::FailFirst | Do::Internal => {
                Err(PolicyError::internal("the table of racks is empty"))
            }
        }
    }
}

fn placed(placement: Placement) -> Ranking {
    Ranking {
        placements: vec![placement],
        rejected: Vec::new(),
        state: None,
    }
}

fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn allocate() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// What happens after the inner call keeps this from becoming a loop.
#[expect(unconditional_recursion, reason = "the stack's limit is what is tried")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth + 1))) + 1
}

kproxide_policy_sdk::export_host_selection!(Hostile);
