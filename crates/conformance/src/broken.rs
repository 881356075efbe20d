//! Devices that are told the wrong blocks, to show that a comparison would notice.

use plan::{Around, Batch, Exec, Outputs, SequenceArgs, Table};

/// A device whose block tables `damage` changes before every run.
pub fn with_damaged_tables<E: Exec>(exec: E, mut damage: impl FnMut(&mut [Vec<Table>])) -> impl Exec {
    Around::new(exec, move |exec: &mut E, program, batch: &Batch<'_>, outputs: &mut Outputs<'_>| {
        let mut tables: Vec<Vec<Table>> = batch.sequences.iter().map(|args| args.tables.to_vec()).collect();
        damage(&mut tables);
        let args = tables.iter().zip(batch.sequences);
        let args: Vec<_> = args.map(|(tables, args)| SequenceArgs { tables, slot: args.slot }).collect();
        exec.run(program, &Batch { sequences: &args, ..*batch }, outputs)
    })
}
