import net from 'node:net'
import tls from 'node:tls'
import { type Config, productionProblems } from '../config.ts'
import { durationText } from '../ops/words.ts'
import type { ConfigError, Settings } from '../settings.ts'
import type { Check } from './doctor-database.ts'

const CONNECT_WITHIN_MS = 3_000

/** The configuration file, the secrets and what the sources warn of. */
export function checkConfig(settings: Settings, config: Config | ConfigError): Check[] {
  const apiKey: Check = settings.inboxiliApiKey
    ? { check: 'secrets', level: 'ok', text: 'INBOXILI_API_KEY' }
    : { check: 'secrets', level: 'problem', text: 'INBOXILI_API_KEY is not set: no worker starts' }
  if (!('sources' in config)) {
    return [apiKey, ...config.problems.map((text): Check => ({ check: 'configuration', level: 'problem', text }))]
  }
  const sources = [...config.sources.values()]
  const refused = settings.production ? productionProblems(settings, config) : []
  const hasReports = sources.some(({ settles }) => settles)
  return [
    apiKey,
    {
      check: 'configuration',
      level: 'ok',
      text: `configuration: ${sources.length} source${sources.length === 1 ? '' : 's'}, ${config.rules.length} rule${config.rules.length === 1 ? '' : 's'}`,
    },
    ...refused.map((text): Check => ({ check: 'configuration', level: 'problem', text })),
    ...(hasReports
      ? []
      : [
          {
            check: 'sources',
            level: 'attention',
            text: 'no source of provider inboxili: delivery events come in nowhere, so nothing that is unknown settles by itself',
          } as const,
        ]),
    ...config.warnings.map((text): Check => ({ check: 'sources', level: 'attention', text })),
  ]
}

/** Providers that sign the address that they post to, with the option that repeats it here. */
const signedAddress: Readonly<Record<string, string>> = { square: 'notificationUrl', twilio: 'publicUrl' }

/** The public address, for people who set up a source, and for those sources whose signature covers it. */
export function checkPublicUrl({ publicUrl, production }: Settings, config: Config): Check[] {
  const signing = [...config.sources.values()].flatMap(({ name, provider, options }) => {
    const address = options[signedAddress[provider.name] ?? '']
    return typeof address === 'string' ? [{ name, address }] : []
  })
  if (publicUrl === undefined) {
    return [{ check: 'public_url', level: 'attention', text: 'PUBLIC_URL is not set: nobody is told the whole address to paste' }]
  }
  const others = signing.filter(({ address }) => URL.canParse(address) && new URL(address).origin !== new URL(publicUrl).origin)
  const isPlain = production && publicUrl.startsWith('http:')
  return [
    {
      check: 'public_url',
      level: isPlain ? 'attention' : 'ok',
      text: isPlain ? 'PUBLIC_URL is http: most providers post to https only' : 'PUBLIC_URL',
    },
    ...others.map(
      ({ name }): Check => ({
        check: 'public_url',
        level: 'attention',
        text: `source ${name} verifies for another address than PUBLIC_URL: its provider signs the address that it posts to`,
      }),
    ),
  ]
}

/** Connects to the email API and hangs up; no request is made, so nothing is sent. */
export async function checkEmailApi({ inboxiliBaseUrl = 'https://api.inboxili.com' }: Settings): Promise<Check[]> {
  const { protocol, hostname, port } = new URL(inboxiliBaseUrl)
  const isEncrypted = protocol === 'https:'
  const host = hostname.replace(/^\[|\]$/g, '')
  const to = { host, port: Number(port) || (isEncrypted ? 443 : 80) }
  const started = performance.now()
  const failure = await new Promise<string | undefined>((done) => {
    const socket = isEncrypted ? tls.connect({ ...to, ...(net.isIP(host) === 0 && { servername: host }) }) : net.connect(to)
    const end = (why?: string) => {
      done(why)
      socket.destroy()
    }
    socket.once(isEncrypted ? 'secureConnect' : 'connect', () => end())
    socket.setTimeout(CONNECT_WITHIN_MS, () => end(`no answer in ${durationText(CONNECT_WITHIN_MS)}`))
    socket.on('error', ({ code, message }: NodeJS.ErrnoException) => end(code ?? message))
  })
  const name = `email API ${to.host}:${to.port}`
  return failure === undefined
    ? [{ check: 'email_api', level: 'ok', text: `${name} reached in ${durationText(performance.now() - started)}` }]
    : [{ check: 'email_api', level: 'problem', text: `${name} can't be reached: ${failure}` }]
}
