//! A task that appends its job's name and the time to the given file, and does nothing else. Apart from the
//! scheduler, the measured times contain only the work of the loader before `main`.

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
