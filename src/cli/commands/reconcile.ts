import type { Command } from 'commander'
import { isExclusive, withDatabase } from '../environment.ts'
import { interruption, terminal, withOutput } from '../terminal.ts'

/** `oncehook reconcile FILE`: settles from the provider's own log. */
export function addReconcileCommand(program: Command): void {
  withOutput(program.command('reconcile'), { isTable: true })
    .description('settle from the sending log exported from the Inboxili dashboard; without --apply only say what would happen')
    .argument('<file>', 'CSV')
    .option('--columns <list>', 'FIELD=COLUMN,… for recipient, message_id, status, time, subject; guessed without it')
    .option('--zone <zone>', 'of times that name none, such as Europe/Berlin; UTC without it')
    .option('--dry-run', 'only say what would happen, as without --apply')
    .option('--apply', 'do it')
    .option('--reason <text>', 'why, with --apply; kept in the audit log')
    .option('--by <name>', 'who decides; the user of this system without it')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook reconcile sending-log.csv --dry-run\n  $ oncehook reconcile sending-log.csv --apply --reason "log of 29 November"',
    )
    .action(async (file: string, options) => {
      const exclusive = await isExclusive()
      await withDatabase(options, async (db) =>
        (await import('../reconcile.ts')).reconcileCommand(db, file, exclusive, {
          ...options,
          ...terminal(options),
          logZone: options.zone,
          interrupted: interruption(),
        }),
      )
    })
}
