import type { Command } from 'commander'
import { withSources } from '../environment.ts'
import { terminal, withOutput } from '../terminal.ts'

/** `oncehook sources …`: who posts here. */
export function addSourceCommands(program: Command): void {
  const sources = program.command('sources').description('who posts here, and what they were answered')
  withOutput(sources.command('list', { isDefault: true }), { isTable: true })
    .description('with the requests of the last 24 hours')
    .action(async (options) =>
      withSources(options, async (db, given) =>
        (await import('../sources.ts')).listSourcesCommand(db, given, { ...options, ...terminal(options) }),
      ),
    )
  withOutput(sources.command('show'))
    .description('one source: why it refused, and which of its secrets are used')
    .argument('<name>')
    .action(async (name: string, options) =>
      withSources(options, async (db, given) =>
        (await import('../sources.ts')).showSourceCommand(db, given, name, { ...options, ...terminal(options) }),
      ),
    )
}
