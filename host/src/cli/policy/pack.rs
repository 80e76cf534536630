//! `kproxide policy pack`: a policy as a ConfigMap.

use std::error::Error;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use serde_json::json;

use super::given::{Given, Tools};
use crate::args::Format;
use crate::args::policy::Pack;
use crate::cli::Exit;
use crate::cli::exit::Mistake;
use crate::cli::plan::print;

/// The API server takes no more in all values of a ConfigMap.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;
/// Client-side `kubectl apply` keeps the whole object in an annotation, and annotations take no more.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// # Errors
/// The policy cannot be used, it is too big, or the output is closed.
pub(super) async fn pack(args: &Pack, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.policy)?;
    // What kproxide would refuse is not worth a ConfigMap.
    given.loaded(&Tools::new()?).await?;
    let unpacked = given.unpacked()?;
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
    let name = args.name.as_deref().unwrap_or(&given.name);
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": args.namespace },
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

/// For the person who reads the file before it is applied.
fn head(unpacked: usize, packed: usize, text: usize) -> String {
    let share = packed * 100 / CONFIG_MAP_BYTES_MAX;
    let fits = match text > ANNOTATION_BYTES_MAX {
        true => "This one does not fit",
        false => "This one fits",
    };
    format!(
        "# {unpacked} bytes, {packed} compressed: {share} % of the 1 MiB that a ConfigMap holds.
# kubectl apply --server-side -f FILE
# Without --server-side kubectl keeps a copy in an annotation of at most 256 KiB. {fits}.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_says_whether_client_side_apply_works() {
        let small = head(1000, 500, 2000);
        assert!(small.contains("0 % of the 1 MiB") && small.contains("This one fits."));
        let large = head(1 << 20, 1 << 19, 300 << 10);
        assert!(large.contains("50 % of the 1 MiB") && large.contains("does not fit."));
    }
}
