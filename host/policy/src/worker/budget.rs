//! How much memory there is for all children: a child beyond the container's limit would take the controller with it.

use std::fs;
use std::path::Path;

/// What the controller itself may come to need.
const CONTROLLER_BYTES: u64 = 160 << 20;
const BYTES_MAX: u64 = 512 << 20;
/// Less is of no use: one small policy is compiled and called in it.
const BYTES_MIN: u64 = 128 << 20;

/// What is left of the container's limit, by cgroups of either version; what is given, if something is.
pub fn memory_bytes(given: Option<u64>) -> u64 {
    let limit =
        || limit_bytes(Path::new("/sys/fs/cgroup")).map_or(BYTES_MAX, beside_the_controller);
    given.unwrap_or_else(limit)
}

fn beside_the_controller(limit: u64) -> u64 {
    let left = limit.saturating_sub(CONTROLLER_BYTES);
    if left < BYTES_MIN {
        tracing::warn!(
            limit_mib = limit >> 20,
            "the container's memory limit leaves too little for policies of files: they get {} MiB all the same. \
             Give the container at least {} MiB",
            BYTES_MIN >> 20,
            (CONTROLLER_BYTES + BYTES_MIN) >> 20
        );
    }
    left.clamp(BYTES_MIN, BYTES_MAX)
}

/// Of the cgroup whose files a container sees. `None`: there is no limit.
fn limit_bytes(root: &Path) -> Option<u64> {
    let of = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(root.join(file)).ok()?;
        text.trim().parse().ok()
    };
    // Version 1 writes a number near 2^63 where there is no limit, and version 2 the word max.
    of("memory.max").or_else(|| of("memory/memory.limit_in_bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_s_limit_is_found_in_cgroups_of_both_versions() {
        let limited = |file: &str, text: &str| {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            limit_bytes(root.path())
        };
        let (v2, v1) = ("memory.max", "memory/memory.limit_in_bytes");
        assert_eq!(limited(v2, "536870912\n"), Some(512 << 20));
        assert_eq!(limited(v1, "268435456\n"), Some(256 << 20));
        assert_eq!(limited(v2, "max\n"), None);
        assert_eq!(limited("other", "1\n"), None);
    }

    #[test]
    fn policies_get_what_the_controller_leaves() {
        assert_eq!(beside_the_controller(512 << 20), 352 << 20);
        assert_eq!(beside_the_controller(4 << 30), 512 << 20);
        assert_eq!(beside_the_controller(200 << 20), BYTES_MIN);
        assert_eq!(beside_the_controller(u64::MAX), BYTES_MAX);
        assert_eq!(memory_bytes(Some(300 << 20)), 300 << 20);
    }
}
