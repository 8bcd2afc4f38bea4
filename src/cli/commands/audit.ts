import type { Command } from 'commander'
import { withDatabase } from '../environment.ts'
import { terminal, wholeNumber, withOutput } from '../terminal.ts'

/** `oncehook audit …`: what people and programs have changed. */
export function addAuditCommands(program: Command): void {
  const audit = program.command('audit').description('who changed what, when and why; nothing in it can be changed')
  withOutput(audit.command('list', { isDefault: true }), { isTable: true })
    .description('newest first')
    .option('--actor <name>', 'person:NAME, token:NAME, or the name of a --by')
    .option('--action <action>', 'such as retry, or as the table says it: "send it again"')
    .option('--subject <subject>', 'such as send:KEY')
    .option('--since <time>', 'ISO time, 24h, 7d')
    .option('--until <time>', 'before then')
    .option('--limit <n>', 'rows', wholeNumber)
    .option('--cursor <cursor>', 'the next page')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook audit list --since 7d\n  $ oncehook audit list --subject send:invoice:INV-1042:paid',
    )
    .action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../audit.ts')).listAuditCommand(db, { ...options, ...terminal(options) }),
      ),
    )
}
