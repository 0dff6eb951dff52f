"""The work in a viewer as a project: conversion from and to layers, autosave, recovery."""
