//! `cargo licenses`: `THIRD-PARTY.txt` of what is shipped for this computer's architecture, on standard output.

use std::env::consts::ARCH;
use std::process::ExitCode;

use kproxide_testkit::licenses::Shipped;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people"
)]
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let shipped = match arguments.as_slice() {
        [one] if one == "image" => Shipped::Image,
        [one] if one == "archive" => Shipped::Archive,
        _ => {
            eprintln!(
                "usage: cargo licenses image|archive\nIt prints the licences of what the image, or a release's archive, is made of."
            );
            return ExitCode::from(2);
        }
    };
    match shipped.third_party(ARCH) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{}", reason.trim_end());
            ExitCode::FAILURE
        }
    }
}
