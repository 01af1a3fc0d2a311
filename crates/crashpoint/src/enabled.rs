//! Reads the order file at each crash point and executes the order.

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use crate::{Point, VARIABLE};

/// Last order that this process read, and the number of times its point was reached since.
static COUNT: Mutex<(String, u32)> = Mutex::new((String::new(), 0));

/// Returns the path of the order file, if the test configured one.
pub(crate) fn file() -> Option<&'static Path> {
    static FILE: LazyLock<Option<PathBuf>> = LazyLock::new(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    FILE.as_deref()
}

pub(crate) fn reach(file: &Path, point: Point) {
    let Ok(order) = std::fs::read_to_string(file) else { return };
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    if is_reached(&order, point, &mut count) && std::fs::remove_file(file).is_ok() {
        die();
    }
}

/// Returns whether the order names this point and its count is reached.
fn is_reached(order: &str, point: Point, (seen, count): &mut (String, u32)) -> bool {
    let Some((nth, name)) = order.split_once(':').and_then(|(_serial, rest)| rest.split_once(':')) else {
        return false;
    };
    if name != point.name() {
        return false;
    }
    if seen != order {
        order.clone_into(seen);
        *count = 0;
    }
    *count += 1;
    nth.parse().is_ok_and(|nth: u32| *count >= nth)
}

fn die() -> ! {
    // A process may always kill itself; abort is the closest alternative if the kill fails.
    kill_process(getpid(), Signal::KILL).ok();
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order;

    #[test]
    fn an_order_applies_at_the_nth_time() {
        let (order, mut count) = (order(Point::FireAfterCommit, 2, 1), (String::new(), 0));
        assert!(!is_reached(&order, Point::FireAfterCommit, &mut count));
        assert!(!is_reached(&order, Point::FireBeforeCommit, &mut count), "another point does not count");
        assert!(is_reached(&order, Point::FireAfterCommit, &mut count));
    }

    #[test]
    fn the_count_restarts_with_each_order() {
        let mut count = (String::new(), 0);
        assert!(!is_reached(&order(Point::StartAfterExec, 2, 1), Point::StartAfterExec, &mut count));
        assert!(!is_reached(&order(Point::StartAfterExec, 2, 2), Point::StartAfterExec, &mut count));
        assert!(!is_reached("", Point::StartAfterExec, &mut count), "a file that is just being written");
    }

    #[test]
    fn no_two_points_share_a_name() {
        let mut names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Point::ALL.len());
    }
}
