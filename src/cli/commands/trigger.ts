import type { Command } from 'commander'
import { loadConfig } from '../../config.ts'
import { readSettings } from '../../settings.ts'
import { useRunning } from '../environment.ts'
import { visible } from '../output.ts'
import { finish, wholeNumber } from '../terminal.ts'

interface Options {
  url?: string
  id?: string
  about?: string
  email?: string
  count?: number
  fault?: string
}

/** `oncehook trigger SOURCE TYPE`: a sample event, for development. */
export function addTriggerCommand(program: Command): void {
  program
    .command('trigger')
    .description('sign a sample event as its provider would, and post it')
    .argument('<source>')
    .argument('[type]', 'such as invoice.paid; without it the known ones are listed')
    .option('--url <url>', 'address of the service')
    .option('--id <id>', 'event ID; the same one again is a redelivery')
    .option('--about <id>', 'ID of an earlier sample: another event of the same payment')
    .option('--email <address>', "the customer's address")
    .option('--count <n>', 'post it so many times at once', wholeNumber)
    .option('--fault <name>', 'have the running email sandbox fail its next call so; "list" lists them')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook trigger stripe invoice.paid --email ada@example.com\n  $ oncehook trigger stripe invoice.paid --id evt_1 --count 20\n  $ oncehook trigger stripe invoice.paid --fault timeout',
    )
    .action(async (name: string, type: string | undefined, { fault, ...options }: Options) => {
      const { triggerCommand } = await import('../trigger.ts')
      const running = useRunning()
      const settings = readSettings()
      const config = await loadConfig(settings.configPath)
      const source = config.sources.get(name)
      if (!source) {
        const names = [...config.sources.keys()].join(', ')
        return finish({
          stdout: '',
          stderr: `oncehook: there is no source "${visible(name)}"; there are ${names}\n`,
          exitCode: 2,
        })
      }
      if (fault !== undefined) {
        const { armFault } = await import('../faults.ts')
        const refusal = await armFault(fault, { settings, ...(options.email !== undefined && { to: options.email }) })
        if (refusal) return finish(refusal)
      }
      const { url = running?.url ?? settings.publicUrl ?? `http://127.0.0.1:${settings.port}`, ...rest } = options
      finish(
        await triggerCommand(source, {
          url,
          ...(type !== undefined && { type }),
          ...rest,
          testKeysPath: settings.testKeysPath,
        }),
      )
    })
}
