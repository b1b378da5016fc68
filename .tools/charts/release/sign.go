package main

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// signer returns the signature of a text in base64.
type signer func(text []byte) (string, error)

// writeChecksums writes the SHA-256 of all files, and with a key their signature.
func (o options) writeChecksums(sign signer) error {
	files, err := o.files()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, file := range files {
		sum, err := o.sum(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, file)
	}
	if err := o.write("checksums.txt", []byte(b.String())); err != nil || sign == nil {
		return err
	}
	signature, err := sign([]byte(b.String()))
	if err != nil {
		return err
	}
	return o.write("checksums.txt.sig", []byte(signature+"\n"))
}

// readKey reads an ECDSA key in PEM, in PKCS #8 or SEC 1. The signature is that of
// `openssl dgst -sha256 -sign` and of `cosign sign-blob`.
func readKey(file string) (signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return func(text []byte) (string, error) {
		sum := sha256.Sum256(text)
		signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
		return base64.StdEncoding.EncodeToString(signature), err
	}, nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not in PEM")
	}
	if block.Type == "EC PRIVATE KEY" {
		return x509.ParseECPrivateKey(block.Bytes)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is not an unencrypted ECDSA key: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T, not an ECDSA key", key)
	}
	return ec, nil
}
