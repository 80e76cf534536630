//! Whose VM it is: one line in the description, signed. Pure.
//!
//! ```text
//! kproxide: v1 cid=<cluster id> claim=<uid> vmid=<n> n=<nonce> mac=<32 hex digits>
//! kproxide-tombstone: v1 cid=… claim=… vmid=… n=… mac=…
//! kproxide-anchor: v1 cid=… claim=<ProxmoxCluster> vmid=… n=<mark> mac=…
//! ```
//!
//! Proxmox: a clone copies the description, tags and name of its source, so that somebody's copy of one of our VMs looks
//! like ours. The signature covers the VMID, which no copy can share; the key never leaves our cluster. Other lines in the
//! description are people's and stay.

use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::{Digest as _, Sha256};

use kproxide_common::hex::hex;

const MARKER: &str = "kproxide:";
const TOMBSTONE: &str = "kproxide-tombstone:";
const ANCHOR: &str = "kproxide-anchor:";
const VERSION: &str = "v1";

/// HMAC-SHA-256 cut to 128 bits.
const MAC_BYTES: usize = 16;

/// The secret that signs markers.
#[derive(Debug, Clone)]
pub struct Key(SecretSlice<u8>);

/// A key that protects nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ownership key has {0} bytes; at least 32 are needed")]
pub struct KeyTooShort(usize);

impl Key {
    /// At least 32 random bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn new(bytes: Vec<u8>) -> Result<Key, KeyTooShort> {
        if bytes.len() < 32 {
            return Err(KeyTooShort(bytes.len()));
        }
        Ok(Key(bytes.into()))
    }

    /// Tells keys apart without telling them.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"kproxide key fingerprint\n");
        hash.update(self.0.expose_secret());
        hex(&hash.finalize()[..8])
    }

    fn mac(&self, kind: &str, marker: &Marker) -> [u8; MAC_BYTES] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose_secret())
            .expect("HMAC takes keys of any length");
        // Fields hold no blanks, so that no two markers share a text.
        mac.update(format!("{kind} {VERSION} {}", marker.fields()).as_bytes());
        let mut cut = [0; MAC_BYTES];
        cut.copy_from_slice(&mac.finalize().into_bytes()[..MAC_BYTES]);
        cut
    }
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// UID of the `kube-system` namespace.
    pub cluster_id: String,
    /// UID of the NodeClaim; of an anchor, the name of its ProxmoxCluster.
    pub claim_uid: String,
    /// The VM it belongs to.
    pub vmid: u32,
    /// New for each try, recorded in the claim; of an anchor, what it shows.
    pub nonce: String,
}

/// A marker found in a description; not believed until verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMarker {
    /// What it says.
    pub marker: Marker,
    mac: [u8; MAC_BYTES],
    kind: &'static str,
}

/// Why a description proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// No marker.
    #[error("the description holds no kproxide marker")]
    Absent,
    /// More than one.
    #[error("the description holds more than one kproxide marker")]
    Several,
    /// A marker that cannot be read.
    #[error("the marker in the description is malformed")]
    Malformed,
    /// A marker of another VM, of another cluster, or made by hand.
    #[error(
        "the marker's signature does not belong to this VM (a copy of a machine of ours, or another installation's)"
    )]
    Forged,
    /// A genuine marker with other contents than expected.
    #[error("the marker's {field} is {found}, expected {expected}")]
    Differs {
        /// Which field.
        field: &'static str,
        /// What the marker says.
        found: String,
        /// What it should say.
        expected: String,
    },
}

impl Marker {
    /// The line for the description.
    pub fn sign(&self, key: &Key) -> String {
        self.line(MARKER, key)
    }

    /// The line that marks a VM to be destroyed. It holds even if the process that wrote it ends.
    pub fn tombstone(&self, key: &Key) -> String {
        self.line(TOMBSTONE, key)
    }

    /// Finds the marker in a description, among other lines.
    ///
    /// # Errors
    /// There is none, more than one, or an unreadable one.
    pub fn find(description: &str) -> Result<SignedMarker, NotOurs> {
        find(description, MARKER)
    }

    /// The line that says: this VM is no machine but the anchor of a Kubernetes cluster, and shows this nonce.
    pub fn anchor(&self, key: &Key) -> String {
        self.line(ANCHOR, key)
    }

    /// Finds the anchor's line in a description.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_anchor(description: &str) -> Result<SignedMarker, NotOurs> {
        find(description, ANCHOR)
    }

    /// Finds the tombstone in a description.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_tombstone(description: &str) -> Result<SignedMarker, NotOurs> {
        find(description, TOMBSTONE)
    }

    fn line(&self, kind: &'static str, key: &Key) -> String {
        format!(
            "{kind} {VERSION} {} mac={}",
            self.fields(),
            hex(&key.mac(kind, self))
        )
    }

    fn fields(&self) -> String {
        let (cluster, claim) = (&self.cluster_id, &self.claim_uid);
        format!(
            "cid={cluster} claim={claim} vmid={} n={}",
            self.vmid, self.nonce
        )
    }
}

impl SignedMarker {
    /// The marker, if one of `keys` signed it for this very VM. While a key is being replaced, both are accepted.
    ///
    /// # Errors [`NotOurs::Forged`], without details that would help a forger.
    pub fn verify(&self, keys: &[Key], vmid: u32) -> Result<&Marker, NotOurs> {
        let signed = keys.iter().any(|key| {
            // Compares all bytes in any case, so that the time does not reveal how many were right.
            let difference = key
                .mac(self.kind, &self.marker)
                .iter()
                .zip(&self.mac)
                .fold(0, |difference, (ours, theirs)| difference | (ours ^ theirs));
            difference == 0
        });
        if signed && self.marker.vmid == vmid {
            Ok(&self.marker)
        } else {
            Err(NotOurs::Forged)
        }
    }
}

/// Does `description` prove that VM `expected.vmid` is the one of this claim and this try?
///
/// # Errors
/// What does not fit. Any error forbids every effect on the VM.
pub fn prove(description: &str, keys: &[Key], expected: &Marker) -> Result<(), NotOurs> {
    let found = Marker::find(description)?;
    let marker = found.verify(keys, expected.vmid)?;
    let pairs = [
        ("cluster", &marker.cluster_id, &expected.cluster_id),
        ("claim", &marker.claim_uid, &expected.claim_uid),
        ("nonce", &marker.nonce, &expected.nonce),
    ];
    for (field, found, expected) in pairs {
        if found != expected {
            return Err(NotOurs::Differs {
                field,
                found: found.clone(),
                expected: expected.clone(),
            });
        }
    }
    Ok(())
}

/// `description` with `line` in place of our line of the same kind; people's lines stay as they are.
pub fn with_line(description: &str, line: &str) -> String {
    let kind = line.split_inclusive(':').next().unwrap_or(line);
    let mut lines: Vec<&str> = description
        .lines()
        .filter(|other| !other.trim_start().starts_with(kind))
        .collect();
    lines.push(line);
    lines.join("\n")
}

fn find(description: &str, kind: &'static str) -> Result<SignedMarker, NotOurs> {
    let mut found = description
        .lines()
        .filter_map(|line| line.trim().strip_prefix(kind));
    let line = found.next().ok_or(NotOurs::Absent)?;
    if found.next().is_some() {
        return Err(NotOurs::Several);
    }
    parse(line, kind).ok_or(NotOurs::Malformed)
}

fn parse(line: &str, kind: &'static str) -> Option<SignedMarker> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != VERSION {
        return None;
    }
    let mut field = |name: &str| {
        words
            .next()?
            .split_once('=')
            .filter(|(found, value)| *found == name && !value.is_empty())
            .map(|(_, value)| value.to_owned())
    };
    let marker = Marker {
        cluster_id: field("cid")?,
        claim_uid: field("claim")?,
        vmid: number(&field("vmid")?)?,
        nonce: field("n")?,
    };
    let mac = unhex(&field("mac")?)?;
    words
        .next()
        .is_none()
        .then_some(SignedMarker { marker, mac, kind })
}

/// As we write it, and in no other way.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn unhex(text: &str) -> Option<[u8; MAC_BYTES]> {
    let mut bytes = [0; MAC_BYTES];
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * MAC_BYTES || !text.bytes().all(is_digit) {
        return None;
    }
    for (position, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * position..2 * position + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(vec![byte; 32]).unwrap()
    }

    fn marker() -> Marker {
        Marker {
            cluster_id: "c-1".to_owned(),
            claim_uid: "u-1".to_owned(),
            vmid: 101,
            nonce: "abc".to_owned(),
        }
    }

    fn proof(description: &str, keys: &[Key], expected: &Marker) -> Result<(), NotOurs> {
        prove(description, keys, expected)
    }

    #[test]
    fn our_line_among_others_is_proof() {
        let description = format!("bought in May\n  {}  \nask ops", marker().sign(&key(1)));
        assert_eq!(proof(&description, &[key(1)], &marker()), Ok(()));
        assert_eq!(proof(&description, &[key(2), key(1)], &marker()), Ok(()));
    }

    #[test]
    fn f107_a_copy_with_another_number_is_not_ours() {
        let line = marker().sign(&key(1));
        let copy = Marker {
            vmid: 102,
            ..marker()
        };
        assert_eq!(proof(&line, &[key(1)], &copy), Err(NotOurs::Forged));
        let renumbered = line.replace("vmid=101", "vmid=102");
        assert_eq!(proof(&renumbered, &[key(1)], &copy), Err(NotOurs::Forged));
    }

    #[test]
    fn nothing_else_is_proof() {
        let line = marker().sign(&key(1));
        for (description, expected) in [
            (String::new(), NotOurs::Absent),
            (" qmclone temporary file".to_owned(), NotOurs::Absent),
            (format!("{line}\n{line}"), NotOurs::Several),
            (line.replace("v1", "v2"), NotOurs::Malformed),
            (line[..line.len() - 2].to_owned(), NotOurs::Malformed),
            (format!("{line} x=y"), NotOurs::Malformed),
            (line.replace("claim=u-1", "claim=u-2"), NotOurs::Forged),
            (marker().tombstone(&key(1)), NotOurs::Absent),
            (
                marker().tombstone(&key(1)).replace("-tombstone", ""),
                NotOurs::Forged,
            ),
            (marker().sign(&key(9)), NotOurs::Forged),
        ] {
            assert_eq!(
                proof(&description, &[key(1)], &marker()),
                Err(expected),
                "{description}"
            );
        }
        assert_eq!(proof(&line, &[], &marker()), Err(NotOurs::Forged));
    }

    #[test]
    fn f75_another_installations_marker_is_not_ours() {
        let theirs = Marker {
            cluster_id: "c-2".to_owned(),
            ..marker()
        };
        // With a key of their own, and with a copy of ours.
        assert_eq!(
            proof(&theirs.sign(&key(2)), &[key(1)], &marker()),
            Err(NotOurs::Forged)
        );
        let refused = proof(&theirs.sign(&key(1)), &[key(1)], &marker()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the marker's cluster is c-2, expected c-1"
        );
    }

    #[test]
    fn another_try_of_the_same_claim_is_told_apart() {
        let later = Marker {
            nonce: "def".to_owned(),
            ..marker()
        };
        let refused = proof(&marker().sign(&key(1)), &[key(1)], &later).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the marker's nonce is abc, expected def"
        );
    }

    #[test]
    fn a_tombstone_joins_the_marker() {
        let before = format!("mine\n{}", marker().sign(&key(1)));
        let after = with_line(&before, &marker().tombstone(&key(1)));
        assert_eq!(proof(&after, &[key(1)], &marker()), Ok(()));
        let tombstone = Marker::find_tombstone(&after).unwrap();
        assert_eq!(tombstone.verify(&[key(1)], 101), Ok(&marker()));
        assert!(after.starts_with("mine\n"));
        assert_eq!(with_line(&after, &marker().tombstone(&key(1))), after);
    }

    #[test]
    fn keys_are_long_and_silent() {
        assert!(Key::new(vec![7; 31]).is_err());
        assert_ne!(key(1).fingerprint(), key(2).fingerprint());
        assert!(!format!("{:?}", key(7)).contains("7, 7"));
    }
}
