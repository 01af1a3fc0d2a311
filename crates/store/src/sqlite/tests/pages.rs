//! A flipped bit anywhere in the file is reported, quarantined or harmless. Only the number of cells in the header of a page
//! may hide rows of the history from reads, because SQLite has no checksum of a page; a check finds this damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::{Duration, JobId, ShardId};

use super::power_cuts::folder;
use super::process::{batch_of, open};
use super::*;
use crate::StoreError;
use crate::query::{JobFilter, JobRow, Page};
use crate::sqlite::check;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Housekeeping as _, Leases as _, Reads as _};

const BATCHES: u64 = 8;
const JOBS: u64 = 8;
const FLIPS: usize = 160;

/// Returns the bytes of a closed file with some dozens of pages.
async fn file() -> Vec<u8> {
    let place = folder();
    let store = open(place.path()).unwrap();
    let shards: Vec<_> = (0..16).map(ShardId).collect();
    let leases = store.acquire(&shards, "a", Duration::from_hours(1)).await.unwrap();
    let mut sampler = Sampler::new(12);
    for number in 0..BATCHES {
        store.commit(&leases, Arc::new(batch_of(JOBS, number, &mut sampler))).await.unwrap();
    }
    drop(store);
    fs::read(place.path().join("x.db")).unwrap()
}

/// Reads every job from the list and by ID; an error if any part cannot be read.
async fn jobs(folder: &Path) -> Result<(BTreeMap<JobId, JobRow>, usize), StoreError> {
    let store = open(folder)?;
    let (mut found, mut page) = (BTreeMap::new(), Page { after: None, limit: 50 });
    // With a damaged index, a page may end where it began.
    for _ in 0..BATCHES * JOBS {
        let listed = store.jobs(&JobFilter::default(), page).await?;
        for job in &listed.items {
            if let Some(row) = store.job(job.id).await? {
                found.insert(job.id, row);
            }
        }
        page.after = listed.items.last().map(|job| job.id);
        if !listed.more {
            break;
        }
    }
    Ok((found, store.quarantined(1_000).await?.len()))
}

/// F9.
#[tokio::test]
async fn a_flipped_bit_hides_no_live_job_and_no_row_from_a_check() {
    let good = file().await;
    let page_size = 4096;
    let whole = {
        let place = folder();
        fs::write(place.path().join("x.db"), &good).unwrap();
        jobs(place.path()).await.unwrap().0
    };
    assert_eq!(whole.len() as u64, BATCHES * JOBS);
    let mut draws = Sampler::new(13);
    let (mut told, mut aside, mut harmless, mut checked) = (0, 0, 0, 0);
    let mut silent = Vec::new();
    let is_live = |row: &&JobRow| !row.state.status.is_final();
    for n in 0..FLIPS {
        let mut bytes = good.clone();
        let pages = bytes.len() / page_size;
        // Every second flip is in the header of a page, which defines the contents of the page.
        let within = if n % 2 == 0 { draws.below(40) } else { draws.below(page_size as u64) } as usize;
        let at = draws.below(pages as u64) as usize * page_size + within;
        bytes[at] ^= 1 << draws.below(8);
        let place = folder();
        fs::write(place.path().join("x.db"), &bytes).unwrap();
        match jobs(place.path()).await {
            Err(_) => told += 1,
            Ok((_, 1..)) => aside += 1,
            Ok((found, 0)) if found == whole => harmless += 1,
            Ok((found, 0))
                if whole.values().filter(is_live).eq(found.values().filter(is_live))
                    && !check(&place.path().join("x.db")).unwrap().problems.is_empty() =>
            {
                checked += 1;
            }
            Ok((found, 0)) => silent.push(format!(
                "byte {at} (page {}, {within}): {} jobs",
                at / page_size + 1,
                found.len()
            )),
        }
    }
    println!(
        "{told} told, {aside} quarantined, {harmless} harmless, {checked} found by a check, {} silent",
        silent.len()
    );
    assert!(told > 0 && aside > 0 && harmless > 0);
    assert!(silent.is_empty(), "of {FLIPS}: {silent:#?}");
}
