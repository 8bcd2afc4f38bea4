import type { Source } from '../config.ts'
import { sampleRequest } from '../sandbox/samples.ts'

export interface TriggerOptions {
  url: string
  type: string
  id?: string
  email?: string
  count?: number
}

/** `oncehook trigger`: signs a sample event as its provider would, and posts it. */
export async function triggerCommand(source: Source, { url, type, id, email, count = 1 }: TriggerOptions) {
  const secret = source.secrets[0] ?? ''
  const { headers, body } = sampleRequest({
    provider: source.provider.name,
    options: source.options,
    secret,
    type,
    nowSeconds: Math.floor(Date.now() / 1000),
    livemode: source.mode === 'live',
    ...(id !== undefined && { id }),
    ...(email !== undefined && { email }),
  })
  const answers = await Promise.all(
    Array.from({ length: count }, async () => {
      const response = await fetch(`${url}/webhooks/${source.name}`, {
        method: 'POST',
        headers,
        body: new Uint8Array(body),
      }).catch((error: Error & { cause?: { code?: string } }) => {
        throw new Error(`${url} does not answer (${error.cause?.code ?? error.message}): is the service running there?`)
      })
      return { status: response.status, text: await response.text() }
    }),
  )
  return {
    stdout: answers.map(({ status, text }) => `${status} ${text}\n`).join(''),
    stderr: '',
    exitCode: answers.every(({ status }) => status === 200) ? 0 : 1,
  }
}
