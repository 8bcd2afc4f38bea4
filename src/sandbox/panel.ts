import { randomBytes, randomUUID } from 'node:crypto'
import { z } from 'zod'
import { providers } from '../providers/registry.ts'
import { faultPresets, reportPresets } from './presets.ts'
import { type SampleOptions, sampleRequest } from './samples.ts'

/** A source whose events the panel can make. */
export interface SampledSource {
  name: string
  provider: string
  options: unknown
  secret: string
  mode: 'live' | 'test'
  type: string
  /** Another type that the same rule wants. */
  otherType: string | undefined
}

const TIMEOUT_MS = 10_000
const MOST_SHOWN = 50
const AT_ONCE = 20

const ledgerSchema = z.object({
  startedAtMs: z.number(),
  held: z.number(),
  calls: z.array(
    z.object({
      atMs: z.number(),
      to: z.string().nullable(),
      accepted: z.boolean(),
      messageId: z.string().nullable(),
      message: z.record(z.string(), z.unknown()).nullable(),
      answer: z.number().nullable(),
    }),
  ),
})

/** Steers the running email sandbox by its control routes, and posts samples to this service; for development only. */
export function createPanel(options: {
  sandboxUrl: string
  serviceUrl(): string
  source(): SampledSource | undefined
  privateKeys?: SampleOptions['privateKeys']
  now?: () => Date
}) {
  const { now = () => new Date() } = options
  const nowSeconds = () => Math.floor(now().getTime() / 1000)
  const control = async (method: string, path: string, body?: object): Promise<unknown> => {
    const answer = await fetch(new URL(path, options.sandboxUrl), {
      method,
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    })
    if (!answer.ok) throw new Error(`the email sandbox answers ${answer.status}`)
    return answer.json()
  }
  // A sample keeps when it happened, so that the same one again has the same bytes.
  const newSample = () => ({
    payment: randomBytes(6).toString('hex'),
    id: undefined as string | undefined,
    happenedSeconds: nowSeconds(),
  })
  let last = newSample()

  return {
    faults: faultPresets.map(({ name, text }) => ({ name, text })),
    reports: reportPresets.map(({ name, text }) => ({ name, text })),
    async arm(what: 'fault' | 'report', name: string, times: number): Promise<void> {
      const fault = faultPresets.find((preset) => preset.name === name)?.fault
      const report = reportPresets.find((preset) => preset.name === name)?.report
      if (what === 'fault' && fault) await control('POST', '/_sandbox/faults', { faults: [fault], times })
      if (what === 'report' && report) await control('POST', '/_sandbox/reports', { reports: [report], times })
    },
    async clear(): Promise<void> {
      await control('DELETE', '/_sandbox/faults')
      await control('DELETE', '/_sandbox/reports')
    },
    async deliverHeld(): Promise<number> {
      return z.object({ delivered: z.number() }).parse(await control('POST', '/_sandbox/reports/deliver')).delivered
    },
    async truth() {
      const { calls, startedAtMs, held } = ledgerSchema.parse(await control('GET', '/_sandbox/ledger'))
      const emails = calls
        .filter(({ accepted }) => accepted)
        .slice(-MOST_SHOWN)
        .reverse()
        .map(({ atMs, to, messageId, message, answer }) => ({
          at: new Date(atMs),
          to: to ?? '',
          messageId,
          message: message ?? {},
          answer,
        }))
      return { startedAt: new Date(startedAtMs), held, emails }
    },
    sampled() {
      const source = options.source()
      if (!source) return undefined
      const tellsAbout = providers.get(source.provider)?.sample.tellsAbout === true
      return { source: source.name, type: source.type, otherType: tellsAbout ? (source.otherType ?? source.type) : undefined }
    },
    async send(kind: 'new' | 'again' | 'other' | 'many') {
      const source = options.source()
      const definition = source && providers.get(source.provider)
      if (!source || !definition) return undefined
      if (kind === 'new' || kind === 'many') last = newSample()
      const newId = (hex: string) => definition.sample.newId(hex.padEnd(24, '0'), randomUUID())
      last.id ??= newId(last.payment)
      // Both events of a payment are about the same object, so that they make the same key.
      const [id, type] =
        kind === 'other' ? [newId(randomBytes(6).toString('hex')), source.otherType ?? source.type] : [last.id, source.type]
      const { headers, body, query } = sampleRequest({
        provider: source.provider,
        options: source.options,
        secret: source.secret,
        type,
        id,
        about: last.id,
        email: `sample-${last.payment}@example.com`,
        livemode: source.mode === 'live',
        nowSeconds: nowSeconds(),
        happenedSeconds: last.happenedSeconds,
        ...(options.privateKeys && { privateKeys: options.privateKeys }),
      })
      const post = async () => {
        const answer = await fetch(`${options.serviceUrl()}/webhooks/${source.name}${query ? `?${query}` : ''}`, {
          method: 'POST',
          headers,
          body: new Uint8Array(body),
          signal: AbortSignal.timeout(TIMEOUT_MS),
        })
        return wordOf(answer.status, await answer.text())
      }
      const answers = await Promise.all(Array.from({ length: kind === 'many' ? AT_ONCE : 1 }, post))
      return { source: source.name, type, id, answers }
    },
  }
}

/** What became of a post: `accepted`, `duplicate` …, or the status where it says no such word. */
function wordOf(status: number, text: string): string {
  const said = z.object({ status: z.string().max(50) }).safeParse(parsed(text))
  return status === 200 && said.success ? said.data.status : `answered ${status}`
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The private keys of a file that `oncehook start` has made. */
export function readPrivateKeys(text: string): NonNullable<SampleOptions['privateKeys']> {
  return z.object({ rsa: z.string(), ec: z.string(), ed25519: z.string() }).parse(JSON.parse(text))
}
