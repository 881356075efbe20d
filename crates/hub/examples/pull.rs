//! Pulls a model by name into a folder and prints what happens:
//! `cargo run -p turbospark-hub --example pull -- HOME ALIAS`.
//!
//! ALIAS is a catalogued model or one of those kept for checks.

use std::env::args_os;
use std::error::Error;

use turbospark_hub::{CATALOGUE, Event, PullOptions, Store, VERIFY_MODELS, catalogue_entry, pull};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = args_os().skip(1);
    let (Some(home), Some(alias)) = (arguments.next(), arguments.next()) else {
        return Err("usage: pull HOME ALIAS".into());
    };
    let alias = alias.to_string_lossy();
    let entry = match CATALOGUE.iter().chain(VERIFY_MODELS).find(|entry| entry.alias == alias) {
        Some(entry) => entry,
        None => catalogue_entry(&alias)?,
    };
    let mut shown = 0;
    let installed = pull(&Store::new(home.into()), entry, &PullOptions::default(), &mut |event| {
        // A line for every tenth is enough here.
        if let Event::Bytes { done, total: Some(total) } = event {
            let tenth = done * 10 / total.max(1);
            if tenth == shown {
                return;
            }
            shown = tenth;
        }
        println!("{event:?}");
    })?;
    println!("{installed:#?}");
    Ok(())
}
