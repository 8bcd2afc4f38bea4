import { createPublicKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { readEvents } from '../src/providers/read-events.ts'
import { createProvider, providers } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'

interface Vector {
  id: string
  provider: string
  description: string
  method?: string
  url: string
  headers: Record<string, string>
  body_base64: string
  secrets: string[]
  config: { tolerance_seconds?: number; certs?: Record<string, string>; jwks?: Record<string, object>; [option: string]: unknown }
  now: number
  expect: { verified: boolean; event_ids: string[]; types: string[]; reason?: string; response_body?: string }
}

const folder = new URL('./vectors/', import.meta.url)
const files = readdirSync(folder).filter((name) => name.endsWith('.json'))

/** What the vectors say of themselves rather than of the source. */
const remarks = ['tolerance_seconds', 'certs', 'jwks', 'secret_is', 'secret_form', 'hmac_key_encoding']

/** The other settings are options of the source, under the names that a configuration file has for them. */
function optionsOf(config: Vector['config']): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config)
      .filter(([name]) => !remarks.includes(name))
      .map(([name, value]) => [name.replace(/_(.)/g, (_whole, letter: string) => letter.toUpperCase()), value]),
  )
}

function keysOf({ certs = {}, jwks = {} }: Vector['config']): Map<string, KeyObject> {
  return new Map<string, KeyObject>([
    ...Object.entries(certs).map(([url, pem]): [string, KeyObject] => [url, new X509Certificate(pem).publicKey]),
    ...Object.entries(jwks).map(([kid, jwk]): [string, KeyObject] => [
      kid,
      createPublicKey({ key: jwk as { kty: string }, format: 'jwk' }),
    ]),
  ])
}

test('every provider has vectors', () => {
  expect(files.map((file) => file.replace('.json', '')).sort()).toEqual([...providers.keys()].sort())
})

describe.each(files)('%s', (name) => {
  const { vectors } = JSON.parse(readFileSync(new URL(name, folder), 'utf8')) as { vectors: Vector[] }

  test.each(vectors.map((vector) => [`${vector.id} ${vector.description}`, vector] as const))('%s', (_name, vector) => {
    const provider = createProvider(vector.provider, optionsOf(vector.config))
    const headers = Object.fromEntries(Object.entries(vector.headers).map(([header, value]) => [header.toLowerCase(), [value]]))
    const query = vector.url.split('?')[1] ?? ''
    const request = { headers, body: Buffer.from(vector.body_base64, 'base64'), query }
    const { now, secrets, config } = vector
    const keys = keysOf(config)

    if (vector.method === 'GET') {
      expect(provider.challenge?.(query, secrets)).toBe(vector.expect.response_body)
      return
    }
    const tolerance = config.tolerance_seconds ?? provider.toleranceSeconds
    const verdict = verify(provider.scheme, request, secrets, now, tolerance, (name) => keys.get(name) ?? 'unknown')
    const read = verdict.ok ? readEvents(provider, request) : { events: [] }

    expect(verdict.ok).toBe(vector.expect.verified)
    expect(verdict.ok ? undefined : verdict.reason).toBe(vector.expect.reason)
    expect(read.events.map(({ id }) => id)).toEqual(vector.expect.event_ids)
    expect(read.events.map(({ type }) => type)).toEqual(vector.expect.types)
    if (vector.expect.response_body !== undefined) expect(provider.answer?.(request)).toBe(vector.expect.response_body)
  })
})
