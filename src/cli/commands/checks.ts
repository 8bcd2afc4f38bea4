import type { Command } from 'commander'
import { tryConfig, withDatabase } from '../environment.ts'
import { finish, terminal, withOutput } from '../terminal.ts'

/** Reading whole tables of a large database takes its time. */
const MOST_MS_OF_A_CHECK = 300_000
/** As a worker has it: some sweeps look through all old rows. */
const MOST_MS_OF_A_SWEEP = 30_000
const NO_CONFIG = 'So nothing is matched by recipient, and no replay goes on.\n'

/** The commands that look whether all is well: `verify`, `verify-invariants`, `sweep`. */
export function addCheckCommands(program: Command): void {
  withOutput(program.command('verify'))
    .description('check a captured request, or a file of them, and say what is wrong with it')
    .argument('<file>', 'JSON: one request, or a file of test vectors')
    .addHelpText('after', '\nExample:\n  $ oncehook verify captured.json')
    .action(async (file: string, options) => {
      const { verifyFile } = await import('../verify.ts')
      // A file that brings its own secrets needs no configuration, so that one that can't be used is a note only.
      const config = await tryConfig('')
      const given = config ? { sources: config.sources } : {}
      finish({ stderr: '', ...(await verifyFile(file, { ...terminal(options), ...given })) }, options)
    })
  withOutput(program.command('verify-invariants'))
    .description('look for rows that break what must hold; changes nothing, may run beside everything else')
    .option('--ledger <url>', 'compare with what the email sandbox accepted: its address')
    .action(async (options) =>
      withDatabase(
        options,
        async (db, { staleAfterMs }) =>
          (await import('../verify-invariants.ts')).verifyInvariantsCommand(db, staleAfterMs, {
            ...options,
            ...terminal(options),
          }),
        MOST_MS_OF_A_CHECK,
      ),
    )
  withOutput(program.command('sweep'))
    .description('run every sweep of the workers once, and say what each changed')
    .action(async (options) =>
      withDatabase(
        options,
        async (db, settings) =>
          (await import('../sweep.ts')).sweepCommand(db, settings, await tryConfig(NO_CONFIG), {
            ...options,
            ...terminal(options),
          }),
        MOST_MS_OF_A_SWEEP,
      ),
    )
}
