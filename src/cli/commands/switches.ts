import type { Command } from 'commander'
import { withDatabase } from '../environment.ts'
import { terminal, withOutput } from '../terminal.ts'

/** `oncehook sending …` and `oncehook matching …`: the two switches of the whole service. */
export function addSwitchCommands(program: Command): void {
  const sending = program.command('sending').description('whether emails are sent now')
  withOutput(sending.command('show', { isDefault: true }))
    .description('how it stands')
    .action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../switches.ts')).showSendingCommand(db, { ...options, ...terminal(options) }),
      ),
    )
  for (const [name, paused] of [
    ['pause', true],
    ['resume', false],
  ] as const)
    decision(
      sending.command(name),
      paused ? 'hold all sends; nothing is called until a person resumes' : 'let sends go on',
    ).action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../switches.ts')).switchSendingCommand(db, paused, { ...options, ...terminal(options) }),
      ),
    )

  const matching = program
    .command('matching')
    .description('whether reports that name only a recipient settle sends by themselves')
  for (const mode of ['auto', 'suggest'] as const)
    decision(matching.command(mode), mode === 'auto' ? 'settle by themselves' : 'only suggest, a person decides').action(
      async (options) =>
        withDatabase(options, async (db) =>
          (await import('../switches.ts')).switchMatchingCommand(db, mode, { ...options, ...terminal(options) }),
        ),
    )
}

const decision = (command: Command, description: string) =>
  withOutput(command)
    .description(description)
    .requiredOption('--reason <text>', 'why; kept in the audit log')
    .option('--by <name>', 'who decides; the user of this system without it')
