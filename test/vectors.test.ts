import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { readEvents } from '../src/providers/read-events.ts'
import { createProvider } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'

interface Vector {
  id: string
  provider: string
  description: string
  headers: Record<string, string>
  body_base64: string
  secrets: string[]
  config: { tolerance_seconds?: number }
  now: number
  expect: { verified: boolean; event_ids: string[]; types: string[]; reason?: string }
}

const folder = new URL('./vectors/', import.meta.url)
const files = readdirSync(folder).filter((name) => name.endsWith('.json'))

test('the vectors are there', () => {
  expect(files).toEqual(
    expect.arrayContaining(['github.json', 'inboxili.json', 'standard-webhooks.json', 'stripe.json', 'svix.json']),
  )
})

describe.each(files)('%s', (name) => {
  const { vectors } = JSON.parse(readFileSync(new URL(name, folder), 'utf8')) as { vectors: Vector[] }

  test.each(vectors.map((vector) => [`${vector.id} ${vector.description}`, vector] as const))('%s', (_name, vector) => {
    const provider = createProvider(vector.provider)
    const headers = Object.fromEntries(Object.entries(vector.headers).map(([header, value]) => [header.toLowerCase(), [value]]))
    const request = { headers, body: Buffer.from(vector.body_base64, 'base64') }
    const tolerance = vector.config.tolerance_seconds ?? provider.toleranceSeconds

    const verdict = verify(provider.scheme, request, vector.secrets, vector.now, tolerance)
    const read = verdict.ok ? readEvents(provider, request) : { events: [] }

    expect(verdict.ok).toBe(vector.expect.verified)
    expect(verdict.ok ? undefined : verdict.reason).toBe(vector.expect.reason)
    expect(read.events.map(({ id }) => id)).toEqual(vector.expect.event_ids)
    expect(read.events.map(({ type }) => type)).toEqual(vector.expect.types)
  })
})
