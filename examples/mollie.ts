import { defineConfig, env, key } from 'oncehook'

const apiKey = env.required('MOLLIE_API_KEY')

// Mollie has two kinds of webhooks. The new ones are signed. The classic ones are not, and only name a payment: anybody can post
// them, so what counts is the payment as its API has it. The address is what you put into the payment's metadata.
export default defineConfig({
  sources: {
    mollie: { provider: 'mollie', secrets: env.list('MOLLIE_WEBHOOK_SECRETS') },
    mollie_classic: {
      provider: 'mollie',
      classic: true,
      confirm: async ({ id }) => {
        const answer = await fetch(`https://api.mollie.com/v2/payments/${encodeURIComponent(id)}`, {
          headers: { authorization: `Bearer ${apiKey}` },
        })
        // Nobody's payment is ignored; whatever else goes wrong is tried again.
        if (answer.status === 404) return
        if (!answer.ok) throw new Error(`Mollie answered ${answer.status}`)
        return answer.json()
      },
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'mollie',
      type: 'payment-link.paid',
      // Which fields the entity has is not confirmed; look the address up by its ID where it has none.
      email: ({ entityId, _embedded }) =>
        _embedded?.entity.customer?.email && {
          key: key('payment link', entityId, 'paid'),
          to: _embedded.entity.customer.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'classic receipt',
      source: 'mollie_classic',
      type: 'classic',
      email: (payment) =>
        payment.status === 'paid' && {
          key: key('payment', payment.id, 'paid'),
          to: payment.metadata.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'classic payment failed',
      source: 'mollie_classic',
      type: 'classic',
      email: (payment) =>
        payment.status === 'failed' && {
          key: key('payment', payment.id, 'failed'),
          to: payment.metadata.email,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
  ],
})
