//! A task that appends its job's name and the time to the file that it is told, and does nothing else:
//! what the figures have of it beside the scheduler's part is the loader's work before `main`.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> Result<(), Box<dyn Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
    let name = std::env::var("BELFRY_JOB_NAME")?;
    let file = std::env::args_os().nth(1).ok_or("expected a file")?;
    // One short append, so that lines never mix.
    Ok(File::options().append(true).open(file)?.write_all(format!("{name} {now}\n").as_bytes())?)
}
