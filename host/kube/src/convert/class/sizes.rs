//! The sizes of a NodeClass: those that are written, and those that `generatedTypes` makes.

use std::ops::RangeInclusive;

use kproxide_planner::facts::{ClassSpec, GeneratedTypes};

use super::Problems;

/// Of one class, generated or not. No more are made, however long its lists are.
const SIZES_MAX: usize = 100;

const CORES: RangeInclusive<u32> = 1..=512;

const MEMORY_MIB: RangeInclusive<u32> = 128..=16_777_216;

/// The sizes that are generated stand beside those that are written.
pub(super) fn complete(spec: &mut ClassSpec, problems: &mut Problems) {
    let generated = spec.generated_types.iter();
    let counts = generated.clone().map(|it| {
        let memory = it.memory_per_core_mib.len();
        it.cores.len().saturating_mul(memory)
    });
    let count = counts.fold(spec.instance_types.len(), usize::saturating_add);
    if count > SIZES_MAX {
        problems.add(
            "generatedTypes",
            format_args!(
                "with instanceTypes, these are {count} sizes: at most {SIZES_MAX} are taken"
            ),
        );
    }
    if count == 0 {
        problems.add(
            "instanceTypes",
            "is empty, and so is generatedTypes: give at least one size",
        );
    }
    let left = SIZES_MAX.saturating_sub(spec.instance_types.len());
    let sizes: Vec<_> = generated
        .flat_map(GeneratedTypes::sizes)
        .take(left)
        .collect();
    spec.instance_types.extend(sizes);
    spec.instance_types.truncate(SIZES_MAX);
    for (index, one) in spec.instance_types.iter().enumerate() {
        let mut earlier = spec.instance_types[..index].iter();
        if earlier.any(|earlier| earlier.name == one.name) {
            problems.add(
                "instanceTypes",
                format_args!(
                    "{:?} is there twice, also counting those of generatedTypes",
                    one.name
                ),
            );
        }
        if !CORES.contains(&one.cores) || !MEMORY_MIB.contains(&one.memory_mib) {
            problems.add(
                "instanceTypes",
                format_args!(
                    "{:?} has {} cores and {} MiB of memory: give 1 to 512 cores, and 128 to 16777216 MiB",
                    one.name, one.cores, one.memory_mib
                ),
            );
        }
    }
}
