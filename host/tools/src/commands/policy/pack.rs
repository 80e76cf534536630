//! `kproxide policy pack`: a policy as a ConfigMap, or as a file. Of a core module for WASI preview 1, as Go, C and others make it, it first
//! makes a policy.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use kproxide_planner::ids::is_dns_label;
use serde_json::json;

use super::given::{Given, Tools};
use crate::args::Format;
use crate::args::policy::Pack;
use crate::commands::Exit;
use crate::commands::exit::Mistake;
use crate::commands::plan::print;
use kproxide_policy::legal_name;

/// With this begins a core module, and no policy.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
/// The API server takes no more in all values of a ConfigMap.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;
/// Of a ConfigMap's name.
const SUBDOMAIN_BYTES_MAX: usize = 253;
/// Client-side `kubectl apply` keeps the whole object in an annotation, and annotations take no more.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// # Errors
/// The policy cannot be used, it is too big, or the output is closed.
pub(super) async fn pack(args: &Pack, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let named = args.name.as_deref();
    if let Some(name) = named.filter(|name| !is_subdomain(name)) {
        return Err(Mistake(format!(
            "--name {name:?}: Kubernetes takes lower-case letters, digits, '-' and '.', at most {SUBDOMAIN_BYTES_MAX}, with a \
             letter or digit at both ends of each part: for example {}",
            legal_name(name)
        ))
        .into());
    }
    let namespace = &args.namespace;
    if !is_dns_label(namespace) {
        return Err(Mistake(format!(
            "--namespace {namespace:?}: Kubernetes takes lower-case letters, digits and '-', at most 63, with a letter or digit \
             at both ends: for example {}",
            legal_name(namespace)
        ))
        .into());
    }
    let mut given = Given::read(&args.policy)?;
    if let Some(file) = &args.into {
        not_itself(&given.place, file)?;
    }
    let tools = Tools::new()?;
    let refused = |place: &str, problem| format!("{place}: {problem}");
    let unpacked = given.unpacked();
    let mut unpacked = unpacked.map_err(|problem| refused(&given.place, problem))?;
    if unpacked.starts_with(CORE_MODULE) {
        let policy = tools.engine.wrap(unpacked.into()).await;
        unpacked = policy.map_err(|problem| refused(&given.place, problem))?;
        given.packed = unpacked.as_slice().into();
    }
    if let Some(file) = &args.into {
        given.loaded(&tools).await?;
        let file_name = file.display();
        fs::write(file, &unpacked)
            .map_err(|error| format!("{file_name} cannot be written: {error}"))?;
        writeln!(out, "{file_name}: {} KiB", unpacked.len().div_ceil(1024))?;
        return Ok(Exit::Success);
    }
    // Without a name and a time the same policy gives the same bytes.
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(&unpacked)?;
    let packed = encoder.finish()?;
    if packed.len() > CONFIG_MAP_BYTES_MAX {
        return Err(Mistake(format!(
            "{}: it has {} bytes compressed, and a ConfigMap holds at most {CONFIG_MAP_BYTES_MAX} (1 MiB): mount it as an \
             image volume, or from a volume, as a folder of its own",
            given.place,
            packed.len()
        ))
        .into());
    }
    // What kproxide would refuse is not worth a ConfigMap. To compile it takes longest, and so comes last.
    given.loaded(&tools).await?;
    let name = named.unwrap_or(&given.name);
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "binaryData": { format!("{}.wasm.gz", given.name): STANDARD.encode(&packed) },
    });
    match args.output {
        Format::Json => print(out, Format::Json, &config_map)?,
        Format::Text | Format::Yaml => {
            let text = serde_saphyr::to_string(&config_map)?;
            write!(
                out,
                "{}{text}",
                head(unpacked.len(), packed.len(), text.len())
            )?;
        }
    }
    Ok(Exit::Success)
}

/// # Errors
/// The policy would be written over the file that it comes from.
fn not_itself(given: &str, into: &Path) -> Result<(), Mistake> {
    let of_into = fs::canonicalize(into);
    match of_into.is_ok_and(|into| fs::canonicalize(given).is_ok_and(|given| given == into)) {
        true => Err(Mistake(format!(
            "--into {}: that is the file which you gave: give the policy another name",
            into.display()
        ))),
        false => Ok(()),
    }
}

/// A DNS name, as RFC 1123 has it.
fn is_subdomain(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().last()];
        ends.iter().all(|end| end.is_some_and(is_letter))
            && part.bytes().all(|byte| is_letter(byte) || byte == b'-')
    };
    name.len() <= SUBDOMAIN_BYTES_MAX && name.split('.').all(is_part)
}

/// For the person who reads the file before it is applied.
fn head(unpacked: usize, packed: usize, text: usize) -> String {
    let share = packed * 100 / CONFIG_MAP_BYTES_MAX;
    let fits = match text > ANNOTATION_BYTES_MAX {
        true => "This one does not fit",
        false => "This one fits",
    };
    format!(
        "# {unpacked} bytes, {packed} compressed: {share} % of the 1 MiB that a ConfigMap holds.
# kubectl apply --server-side --force-conflicts -f FILE
# Without --server-side kubectl keeps a copy in an annotation of at most 256 KiB. {fits}.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for name in ["a", "1", "my-policy", "a.b-c.d", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in [
            "", "Bad_Name", "Bad Name", "-a", "a-", "a..b", "a.-b", ".a", "ä", &long,
        ] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    fn args(policy: &std::path::Path) -> Pack {
        Pack {
            policy: policy.display().to_string(),
            name: None,
            namespace: "kproxide".to_owned(),
            into: None,
            output: Format::Yaml,
        }
    }

    #[tokio::test]
    async fn what_is_too_big_is_not_compiled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big.wasm");
        // No policy, and nothing that gzip makes smaller.
        let mut state = 1_u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        let bytes: Vec<u8> = noise.take(CONFIG_MAP_BYTES_MAX + (64 << 10)).collect();
        std::fs::write(&path, &bytes).unwrap();
        let said = pack(&args(&path), &mut Vec::new()).await.unwrap_err();
        assert!(
            said.to_string().contains("a ConfigMap holds at most"),
            "{said}"
        );
        std::fs::write(&path, &bytes[..1000]).unwrap();
        let said = pack(&args(&path), &mut Vec::new()).await.unwrap_err();
        assert!(said.to_string().contains("it is not WebAssembly"), "{said}");
    }

    #[test]
    fn the_head_says_whether_client_side_apply_works() {
        let small = head(1000, 500, 2000);
        assert!(small.contains("kubectl apply --server-side --force-conflicts -f"));
        assert!(small.contains("0 % of the 1 MiB") && small.contains("This one fits."));
        let large = head(1 << 20, 1 << 19, 300 << 10);
        assert!(large.contains("50 % of the 1 MiB") && large.contains("does not fit."));
    }
}
