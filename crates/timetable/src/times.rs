//! Sets of times of day, in seconds since midnight.

/// Set of times of day; never empty.
#[derive(Debug, Clone)]
pub(crate) enum Times {
    /// All combinations of hours, minutes and seconds.
    Fields(Fields),
    /// Single times, sorted.
    List(Box<[u32]>),
}

/// Hours, minutes and seconds as bits; none of the three is empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) hours: u32,
    pub(crate) minutes: u64,
    pub(crate) seconds: u64,
}

const SIXTY: u64 = (1 << 60) - 1;

/// Returns the first set bit at or after `from`.
const fn bit_from(bits: u64, from: u32) -> Option<u32> {
    if from > 63 {
        return None;
    }
    let rest = bits >> from;
    if rest == 0 { None } else { Some(from + rest.trailing_zeros()) }
}

impl Times {
    /// Returns the first time at or after `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        match self {
            Self::Fields(fields) => fields.next(from),
            Self::List(list) => list.get(list.partition_point(|time| *time < from)).copied(),
        }
    }

    /// Returns the set with all seconds of its minutes. A list stays the same.
    pub(crate) fn whole_minutes(self) -> Self {
        match self {
            Self::Fields(fields) => Self::Fields(Fields { seconds: SIXTY, ..fields }),
            list @ Self::List(_) => list,
        }
    }

    /// Returns the first time at or after `from` that is not in the set; `None` if the rest of the day is in the set.
    pub(crate) fn next_outside(&self, from: u32) -> Option<u32> {
        match self {
            Self::Fields(fields) => fields.next_outside(from),
            Self::List(list) => {
                let mut time = from;
                for held in &list[list.partition_point(|time| *time < from)..] {
                    if *held != time {
                        break;
                    }
                    time += 1;
                }
                (time < 86_400).then_some(time)
            }
        }
    }
}

impl Fields {
    fn next(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let first_second = self.seconds.trailing_zeros();
        let first_of_hour = self.minutes.trailing_zeros() * 60 + first_second;
        if bit_from(self.hours.into(), hour)? == hour {
            if bit_from(self.minutes, minute) == Some(minute)
                && let Some(second) = bit_from(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = bit_from(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + first_second);
            }
        }
        let later = if self.hours & 1 << hour == 0 { hour } else { hour + 1 };
        bit_from(self.hours.into(), later).map(|hour| hour * 3_600 + first_of_hour)
    }

    /// Examines the next second, minute or hour that can be outside the set: at most some 150 steps.
    fn next_outside(&self, mut from: u32) -> Option<u32> {
        while from < 86_400 {
            let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
            let inside = self.hours & 1 << hour != 0
                && self.minutes & 1 << minute != 0
                && self.seconds & 1 << second != 0;
            if !inside {
                return Some(from);
            }
            from = if self.seconds != SIXTY {
                from + 1
            } else if self.minutes != SIXTY {
                from - second + 60
            } else {
                from - minute * 60 - second + 3_600
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times() -> impl Strategy<Value = Times> {
        let bits = |count: u32| {
            prop_oneof![
                Just(u64::MAX >> (64 - count)),
                (0..count).prop_map(|bit| 1 << bit),
                1..1_u64 << count,
            ]
        };
        let fields = (bits(24), bits(60), bits(60)).prop_map(|(hours, minutes, seconds)| {
            Times::Fields(Fields { hours: hours as u32, minutes, seconds })
        });
        let list = proptest::collection::btree_set(prop_oneof![0..86_400_u32, 100..110_u32], 1..20)
            .prop_map(|set| Times::List(set.into_iter().collect()));
        prop_oneof![fields, list]
    }

    fn holds(times: &Times, time: u32) -> bool {
        match times {
            Times::List(list) => list.contains(&time),
            Times::Fields(f) => {
                f.hours >> (time / 3_600) & 1 == 1
                    && f.minutes >> (time / 60 % 60) & 1 == 1
                    && f.seconds >> (time % 60) & 1 == 1
            }
        }
    }

    proptest! {
        #[test]
        fn the_next_time_is_the_first_that_a_scan_finds(
            times in times(),
            from in prop_oneof![0..86_400_u32, 95..112_u32, 86_300..86_400_u32],
        ) {
            prop_assert_eq!(times.next(from), (from..86_400).find(|time| holds(&times, *time)));
            prop_assert_eq!(times.next_outside(from), (from..86_400).find(|time| !holds(&times, *time)));
        }
    }
}
