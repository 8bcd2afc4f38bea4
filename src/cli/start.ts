import type { Source } from '../config.ts'
import { isTimed } from '../providers/signature.ts'
import { sampleRequest } from '../sandbox/samples.ts'
import type { Settings } from '../settings.ts'
import { type Launched, launch } from './launch.ts'

/** A second signal counts only after this long: a terminal and npm both pass on one Ctrl-C. */
const SECOND_SIGNAL_AFTER_MS = 1_000

/** `oncehook start`: everything on this machine until Ctrl-C. Resolves with the exit code. */
export async function startCommand(settings: Settings): Promise<number> {
  const output = await logOutput()
  const launched = await launch(settings, { directory: '.data', output })
  process.stdout.write(banner(launched))

  // A terminal that closes ends everything; without one, SIGHUP reads the configuration again.
  process.on('SIGHUP', process.stdout.isTTY ? () => process.kill(process.pid, 'SIGTERM') : launched.reload)
  const ended = await Promise.race([untilSignal(), launched.failed])
  if (ended) console.error(`oncehook: ${ended}; stopping the rest`)
  await Promise.race([launched.stop(), untilSignal(SECOND_SIGNAL_AFTER_MS)])
  return ended ? 1 : 0
}

/** Log lines for people on a terminal, as they are (JSON) elsewhere. */
async function logOutput(): Promise<NodeJS.WritableStream> {
  if (!process.stdout.isTTY) return process.stdout
  const { default: pretty } = await import('pino-pretty')
  return pretty({ ignore: 'pid,process', messageFormat: '{process}: {msg}', translateTime: 'SYS:HH:MM:ss.l' })
}

/** Resolves with nothing at SIGINT or SIGTERM. */
function untilSignal(ignoreForMs = 0): Promise<undefined> {
  const from = performance.now() + ignoreForMs
  return new Promise((done) => {
    const stop = () => {
      if (performance.now() >= from) done(undefined)
    }
    process.on('SIGINT', stop)
    process.on('SIGTERM', stop)
  })
}

function banner({ url, databaseUrl, operatorToken, pageUrl, config, testKeys, sandbox }: Launched): string {
  const line = (name: string, value: string) => `  ${name.padEnd(14)}  ${value}\n`
  const bearer = `-H 'Authorization: Bearer ${operatorToken}'`
  return `
Oncehook is running. Ctrl-C stops it; the data stays in .data/.

${line('ops page', pageUrl)}${line('webhooks', `${url}/webhooks/{${[...config.sources.keys()].join(',')}}`)}${line('api', `${url}/v1/sends  ${url}/v1/events`)}${
  sandbox
    ? line('email sandbox', `${sandbox.url}/_sandbox/ledger  (no real email leaves this machine)`)
    : line('email api', 'not the sandbox: real emails may go out')
}${line('database', databaseUrl)}${line('operator token', operatorToken)}${curl(url, config, testKeys)}
Read what became of it:

  curl -sS ${bearer} ${url}/v1/sends

`
}

/** One payment, signed, to be pasted. A scheme without a time in it is preferred, as its signature doesn't grow old. */
function curl(url: string, config: Launched['config'], privateKeys: Launched['testKeys']): string {
  const wanted = config.rules.flatMap(({ source: name, types }) => {
    const source = config.sources.get(name)
    const [type] = types
    return source && type !== undefined ? [{ source, type }] : []
  })
  const { source, type } = wanted.find(({ source }) => !growsOld(source)) ?? wanted[0] ?? {}
  if (!source || type === undefined) return ''
  const { headers, body } = sampleRequest({
    provider: source.provider.name,
    options: source.options,
    secret: source.secrets[0] ?? '',
    type,
    livemode: source.mode === 'live',
    nowSeconds: Math.floor(Date.now() / 1000),
    privateKeys,
  })
  const flags = Object.entries(headers).map(([name, value]) => `-H '${name}: ${value}'`)
  const limit = growsOld(source)
    ? ` (within ${source.toleranceSeconds} s; later: npx oncehook trigger ${source.name} ${type})`
    : ''
  return `
Post a payment${limit}. It causes one email, however often you post it:

  curl -sS ${flags.join(' ')} --data-binary '${body.toString().replaceAll("'", "'\\''")}' ${url}/webhooks/${source.name}
`
}

function growsOld({ provider, toleranceSeconds }: Source): boolean {
  return isTimed(provider.scheme) && Number.isFinite(toleranceSeconds)
}
